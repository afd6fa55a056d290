module github.com/dibslock/dibs/contrib/dibsgoose

go 1.26.0
