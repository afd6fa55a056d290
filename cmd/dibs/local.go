package main

import "errors"

func (a *app) openLocal(o *opened, path string) error { return errors.New("not built yet") }
