module github.com/dibslock/dibs/contrib/dibsgocron

go 1.26.0
