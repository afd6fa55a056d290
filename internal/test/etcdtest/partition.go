package etcdtest

// Partition isolates a member from all other members. Requests and replies between them are lost in
// both directions, and no side receives an error. Clients can still connect to all members.
func (c *Cluster) Partition(i int) {
	for j := range c.Members {
		if j != i {
			c.Cut(i, j)
		}
	}
}

// Cut isolates two members from each other. Other members still reach both. It cannot cut a single
// direction: etcd sends messages in requests and in replies to requests.
func (c *Cluster) Cut(i, j int) {
	c.network.senders[i].links[j].Drop()
	c.network.senders[j].links[i].Drop()
}

// Heal ends every Partition and every Cut. It resets the connections that lost bytes, and does not
// wait until the members have connected again.
func (c *Cluster) Heal() {
	for _, s := range c.network.senders {
		for _, link := range s.links {
			link.Heal()
		}
	}
}
