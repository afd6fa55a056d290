module github.com/dibslock/dibs/cmd/dibsgen

go 1.26.0
