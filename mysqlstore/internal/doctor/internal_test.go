package doctor

import (
	"testing"

	"github.com/dibslock/dibs/checkup"
)

// No test server can be like these: old, or another product.
func TestServer(t *testing.T) {
	for version, want := range map[string]string{
		"10.11.6-MariaDB-0+deb12u1": "", "5.5.5-10.6.1-MariaDB": "", "11.4.2-MariaDB": "", "8.0.36": "", "8.4.0-google": "", "9.1.0": "", "": "",
		"10.5.9-MariaDB": "version", "5.7.44-log": "version", "8.0.11-TiDB-v7.5.0": "server",
	} {
		e := &examination{facts: facts{version: version}}
		e.Report = new(checkup.Report)
		e.checkServer()
		switch found := e.Findings(); {
		case want == "" && len(found) == 0:
		case len(found) != 1 || found[0].Subject != want:
			t.Errorf("%s: want %q, found:\n%v", version, want, found)
		}
	}
}
