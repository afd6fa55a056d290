package dibs

// A fenceBlock is the fences that belong to one lease in the store: those after last, up to
// end. The store has recorded end, so each later grant on the name has a larger fence, even
// if this process crashes in the middle of the block.
type fenceBlock struct{ last, end uint64 }

// newFenceBlock returns the block of a grant: this many fences, at least one, up to its own.
func newFenceBlock(fence, count uint64) fenceBlock {
	return fenceBlock{last: fence - min(max(count, 1), fence), end: fence}
}

// extend adds the fences up to one that the store has issued for the same lease. No other
// lease on the name can have got a fence in between.
func (b *fenceBlock) extend(end uint64) { b.end = max(b.end, end) }

// left returns how many fences are left.
func (b *fenceBlock) left() uint64 { return b.end - b.last }

// next takes the next fence. One must be left.
func (b *fenceBlock) next() uint64 {
	b.last++
	return b.last
}
