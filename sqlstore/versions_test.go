package sqlstore

import (
	"errors"
	"slices"
	"testing"

	"github.com/dibslock/dibs/driver"
)

func TestStepsBetween(t *testing.T) {
	for _, test := range []struct {
		from, to int
		want     []int
	}{
		{0, 3, []int{1, 2, 3}},
		{1, 2, []int{2}},
		{2, 2, nil},
		{3, 1, []int{3, 2}},
		{2, 0, []int{2, 1}},
	} {
		if got, err := StepsBetween(test.from, test.to, 3); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("from %d to %d: %d, %v; want %d", test.from, test.to, got, err, test.want)
		}
	}
	for _, invalid := range [][2]int{{-1, 2}, {2, -1}, {0, 4}, {4, 0}} {
		if got, err := StepsBetween(invalid[0], invalid[1], 3); got != nil || !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("from %d to %d: %d, %v", invalid[0], invalid[1], got, err)
		}
	}
}
