package zkstore_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"net"
	"os"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/zkstore"
)

// A store on an ensemble with TLS, for a user with the scheme digest.
func Example() {
	certificates, err := os.ReadFile("ca.pem")
	if err != nil {
		log.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificates)
	dial := func(network, address string, timeout time.Duration) (net.Conn, error) {
		return tls.DialWithDialer(&net.Dialer{Timeout: timeout}, network, address, &tls.Config{RootCAs: roots})
	}
	store := zkstore.New([]string{"zk1.internal:2281", "zk2.internal:2281", "zk3.internal:2281"},
		zkstore.Prefix("/team/locks"), zkstore.Auth("digest", []byte("app:secret")), zkstore.Dial(dial))
	defer store.Close() // after the client of dibs

	locks := dibs.New(store)
	defer locks.Close()
	err = locks.Mutex("order:42").Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("nobody else works on the order, on any host")
		return ctx.Err()
	})
	if err != nil {
		log.Println(err)
	}
}
