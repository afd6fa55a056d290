package samename

import (
	"context"
	"html/template"
)

type Page interface {
	//dibs:lock "page"
	HTML(ctx context.Context, t *template.Template) (template.HTML, error)
}
