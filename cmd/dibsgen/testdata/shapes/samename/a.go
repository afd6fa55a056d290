package samename

import (
	"context"
	"text/template"
)

type Shop interface {
	Page
	//dibs:lock "a"
	Text(ctx context.Context, t *template.Template) error
}
