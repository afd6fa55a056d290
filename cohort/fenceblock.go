package cohort

// A fenceBlock contains a store lease's fences: those after last, up to end, and then those in the
// next block. The store recorded them, so each later grant on the name gets a larger fence, even if
// this process crashes in the middle of the block.
type fenceBlock struct {
	last, end uint64
	next      *fenceBlock // nil if there is none
}

// newFenceBlock returns the block from first to end.
func newFenceBlock(first, end uint64) fenceBlock { return fenceBlock{last: first - 1, end: end} }

// add adds the fences from first to end, reserved by the store for the same lease.
func (b *fenceBlock) add(first, end uint64) {
	more := newFenceBlock(first, end)
	switch {
	case b.last == b.end:
		*b = more
	case b.next == nil:
		b.next = &more
	default:
		b.next.add(first, end)
	}
}

// left returns how many fences are left.
func (b *fenceBlock) left() uint64 {
	n := b.end - b.last
	if b.next != nil {
		n += b.next.left()
	}
	return n
}

// pop removes and returns the next fence. The block must not be empty.
func (b *fenceBlock) pop() uint64 {
	if b.last == b.end {
		*b = *b.next
	}
	b.last++
	return b.last
}
