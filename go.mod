module github.com/dibslock/dibs

go 1.26
