module github.com/dibslock/dibs/contrib/dibsgrpc

go 1.26.0
