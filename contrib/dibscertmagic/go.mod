module github.com/dibslock/dibs/contrib/dibscertmagic

go 1.26.0
