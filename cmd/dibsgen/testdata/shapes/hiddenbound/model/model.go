// Package model has a type.
package model

type Row struct{}
