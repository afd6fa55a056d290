package core

import (
	"container/heap"
	"time"
)

// An alarm wakes its owner at a time. The zero alarm is not set.
type alarm struct {
	owner alarmOwner
	at    time.Time
	index int // 1 + the index in the heap; 0 if it is not set
}

func (a *alarm) isSet() bool { return a.index > 0 }

// An alarmOwner acts at a given time.
type alarmOwner interface {
	wake(m *Machine, now time.Time)
}

// alarms are the active alarms, the earliest first.
type alarms struct{ heap alarmHeap }

func (s *alarms) set(a *alarm, at time.Time) {
	a.at = at
	if a.index > 0 {
		heap.Fix(&s.heap, a.index-1)
	} else {
		heap.Push(&s.heap, a)
	}
}

func (s *alarms) stop(a *alarm) {
	if a.index > 0 {
		heap.Remove(&s.heap, a.index-1)
	}
}

// next returns the time of the earliest alarm, or zero if there is none.
func (s *alarms) next() time.Time {
	if len(s.heap) == 0 {
		return time.Time{}
	}
	return s.heap[0].at
}

// due removes and returns a due alarm, or nil.
func (s *alarms) due(now time.Time) *alarm {
	if len(s.heap) == 0 || s.heap[0].at.After(now) {
		return nil
	}
	return heap.Pop(&s.heap).(*alarm)
}

type alarmHeap []*alarm

func (h alarmHeap) Len() int           { return len(h) }
func (h alarmHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h alarmHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

// Push implements heap.Interface.
func (h *alarmHeap) Push(x any) {
	a := x.(*alarm)
	*h = append(*h, a)
	a.index = len(*h)
}

// Pop implements heap.Interface.
func (h *alarmHeap) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	a.index = 0
	return a
}
