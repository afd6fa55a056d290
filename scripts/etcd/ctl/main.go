// Command ctl is etcdctl, the command-line client of etcd.
package main

import "go.etcd.io/etcd/etcdctl/v3/ctlv3"

func main() { ctlv3.MustStart() }
