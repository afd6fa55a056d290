package taken

import "fmt"

func time() { fmt.Println() }
