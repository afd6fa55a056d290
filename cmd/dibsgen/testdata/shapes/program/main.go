package main

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

type Shop interface {
	//dibs:lock "order:"+id
	Pay(ctx context.Context, id string) error
}

// Both uses are of a function that does not exist before the first run.
var wrap = LockShop

func main() {
	locks := dibs.New(memstore.New())
	defer locks.Close()
	fmt.Println(LockShop(locks, wrap(locks, nil)) == nil)
}
