package zkurl_test

import (
	"fmt"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/zkstore/zkurl"
)

func ExampleParse() {
	url, err := zkurl.Parse("zk://ann:secret@10.0.0.1,10.0.0.2,10.0.0.3/orders")
	if err != nil {
		fmt.Println(err)
		return
	}
	store := url.Open() // connects to nothing
	defer store.Close()
	locks := dibs.New(store)
	defer locks.Close()
	fmt.Println(url)
	// Output: zk://10.0.0.1:2181,10.0.0.2:2181,10.0.0.3:2181/orders
}
