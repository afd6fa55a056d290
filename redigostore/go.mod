module github.com/dibslock/dibs/redigostore

go 1.26

require github.com/gomodule/redigo v1.9.3
