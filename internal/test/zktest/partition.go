package zktest

// Partition isolates a member from all other members. Bytes between them do not arrive in either
// direction, and no side receives an error. Clients can still connect to all members.
func (c *Cluster) Partition(i int) {
	for j := range c.Members {
		if j != i {
			c.Cut(i, j)
		}
	}
}

// Cut isolates two members from each other. Other members still reach both.
func (c *Cluster) Cut(i, j int) {
	c.network.senders[i].links[j].cut()
	c.network.senders[j].links[i].cut()
}

// Heal ends every Partition and every Cut. It closes the connections whose bytes did not arrive, and
// does not wait until the members have connected again.
func (c *Cluster) Heal() { c.network.heal() }
