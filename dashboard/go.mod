module github.com/dibslock/dibs/dashboard

go 1.26.0

require maragu.dev/gomponents v1.2.0
