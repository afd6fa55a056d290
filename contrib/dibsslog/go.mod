module github.com/dibslock/dibs/contrib/dibsslog

go 1.26.0
