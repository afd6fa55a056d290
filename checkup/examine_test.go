package checkup_test

import (
	"context"
	"errors"
	"testing"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// An examinedStore is a store with an examination.
type examinedStore struct{ driver.Store }

func (examinedStore) Examine(context.Context) (checkup.Findings, error) {
	return checkup.Findings{{Severity: checkup.Warning, Subject: "weather"}}, nil
}

// A decorator forwards to another store, and says to which one.
type decorator struct{ *driver.Full }

// A store is examined through its decorators.
func TestExamine(t *testing.T) {
	for what, s := range map[string]driver.Store{
		"the store itself": examinedStore{memstore.New()},
		"decorated twice":  decorator{driver.Complete(decorator{driver.Complete(examinedStore{memstore.New()})})},
	} {
		found, err := checkup.Examine(t.Context(), s)
		if err != nil || len(found) != 1 || found[0].Subject != "weather" {
			t.Errorf("%s: found %v, %v", what, found, err)
		}
	}
}

// A store without an examination says so.
func TestExamineUnsupported(t *testing.T) {
	_, err := checkup.Examine(t.Context(), driver.Complete(memstore.New()))
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("error %v, want ErrUnsupported", err)
	}
	for what, s := range map[string]driver.Store{
		"nil": nil, "a nil pointer": (*memstore.Store)(nil), "a decorator of no store": decorator{}, "a decorator of nil": decorator{new(driver.Full)},
	} {
		if _, err := checkup.Examine(t.Context(), s); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: error %v, want ErrInvalid", what, err)
		}
	}
}
