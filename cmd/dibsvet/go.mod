module github.com/dibslock/dibs/cmd/dibsvet

go 1.26.0
