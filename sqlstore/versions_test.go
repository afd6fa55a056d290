package sqlstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dibslock/dibs/driver"
)

func TestMigration(t *testing.T) {
	up := func(version int) []string { return []string{fmt.Sprint("+", version), "."} }
	down := func(version int) []string { return []string{fmt.Sprint("-", version)} }
	for _, test := range []struct {
		from, to int
		want     string
	}{
		{0, 3, "+1.+2.+3."},
		{1, 2, "+2."},
		{2, 2, ""},
		{3, 1, "-3-2"},
		{2, 0, "-2-1"},
	} {
		if got, err := Migration(test.from, test.to, 3, up, down); err != nil || strings.Join(got, "") != test.want {
			t.Errorf("from %d to %d: %q, %v; want %q", test.from, test.to, got, err, test.want)
		}
	}
	for _, invalid := range [][2]int{{-1, 2}, {2, -1}, {0, 4}, {4, 0}} {
		if got, err := Migration(invalid[0], invalid[1], 3, up, down); got != nil || !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("from %d to %d: %q, %v", invalid[0], invalid[1], got, err)
		}
	}
}
