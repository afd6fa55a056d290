module github.com/dibslock/dibs/contrib/dibshttp

go 1.26.0
