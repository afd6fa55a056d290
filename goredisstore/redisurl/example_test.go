package redisurl_test

import (
	"fmt"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/goredisstore/redisurl"
)

// The URL can come from a configuration, and the credentials from the environment.
func Example() {
	environment := map[string]string{"DIBS_PASSWORD": "secret"} // os.Getenv in a program
	url, err := redisurl.Parse("redis+sentinel://10.0.0.1,10.0.0.2/mymaster?pool_size=20")
	if err != nil {
		fmt.Println(err)
		return
	}
	rdb, err := url.With(redisurl.Environment(func(name string) string { return environment[name] })).Open()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rdb.Close()
	locks := dibs.New(goredisstore.New(rdb))
	defer locks.Close()
	fmt.Println("locks on", url)
	// Output: locks on redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster/0
}

func ExampleParse() {
	url, err := redisurl.Parse("rediss://app:secret@10.0.0.1?server_name=redis.example")
	fmt.Println(url, err) // without the password
	// Output: rediss://10.0.0.1:6379/0 <nil>
}
