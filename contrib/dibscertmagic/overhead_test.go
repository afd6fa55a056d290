package dibscertmagic_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/caddyserver/certmagic"
	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibscertmagic"
	"github.com/dibslock/dibs/memstore"
)

// BenchmarkOverhead measures how CertMagic obtains a certificate from an authority in this process.
// Its storage is without locks, or with its own, which are files, or with dibs locks.
func BenchmarkOverhead(b *testing.B) {
	files := &certmagic.FileStorage{Path: b.TempDir()}
	locks := dibs.New(memstore.New())
	defer locks.Close()
	issuer, err := newAuthority(func(context.Context) error { return nil })
	if err != nil {
		b.Fatal(err)
	}
	obtained := 0
	for _, c := range []struct {
		name    string
		storage certmagic.Storage
	}{
		{"bare", unlocked{files}},
		{"files", files},
		{"dibs", dibscertmagic.New(files, locks)},
	} {
		b.Run(c.name, func(b *testing.B) {
			config, stop := newInstance(c.storage, issuer)
			defer stop()
			b.ReportAllocs()
			for b.Loop() {
				obtained++ // CertMagic does not obtain a certificate again
				if err := config.ObtainCertSync(b.Context(), fmt.Sprintf("example-%d.com", obtained)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// unlocked is a storage for a single process, without locks.
type unlocked struct{ certmagic.Storage }

func (unlocked) Lock(context.Context, string) error   { return nil }
func (unlocked) Unlock(context.Context, string) error { return nil }
