module github.com/dibslock/dibs/contrib/dibstus

go 1.26.0
