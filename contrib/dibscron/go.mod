module github.com/dibslock/dibs/contrib/dibscron

go 1.26.0
