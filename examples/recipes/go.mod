module github.com/dibslock/dibs/examples/recipes

go 1.26.0
