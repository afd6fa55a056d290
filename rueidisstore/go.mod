module github.com/dibslock/dibs/rueidisstore

go 1.26

require github.com/redis/rueidis v1.0.79
