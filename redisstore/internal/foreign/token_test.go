package foreign

import "testing"

// A lock's value is split only if dibs made the token.
func TestSplitValue(t *testing.T) {
	const token = "web-7:211:q3Zk:m-00000001:nightly"
	for value, want := range map[string]struct {
		token string
		fence uint64
	}{
		"17 " + token:                      {token, 17},
		"17 " + token + " reserved":        {token + " reserved", 17},
		"17 " + token + " 5":               {token + " 5", 17},
		"18446744073709551615 " + token:    {token, 1<<64 - 1},
		"5 h:1:c:x":                        {"h:1:c:x", 5},
		token:                              {token, 0},
		token + " reserved":                {token + " reserved", 0},
		token + " 5":                       {token + " 5", 0},
		" " + token:                        {" " + token, 0},
		"x17 " + token:                     {"x17 " + token, 0},
		"+17 " + token:                     {"+17 " + token, 0},
		"17  " + token:                     {"17  " + token, 0},
		"17:1:c:x 5":                       {"17:1:c:x 5", 0},
		"5 worker":                         {"5 worker", 0},
		"5 a:b:c:d":                        {"5 a:b:c:d", 0},
		"5 h:1:c":                          {"5 h:1:c", 0},
		"5 h:1:c:":                         {"5 h:1:c:", 0},
		"5 h i:1:c:x":                      {"5 h i:1:c:x", 0},
		"":                                 {"", 0},
		"5 ":                               {"5 ", 0},
		"0 " + token:                       {token, 0},
		"99999999999999999999999 " + token: {token, 0},
	} {
		if token, fence := SplitValue(value); token != want.token || fence != want.fence {
			t.Errorf("%q: %q and %d, want %q and %d", value, token, fence, want.token, want.fence)
		}
	}
}

// Only a token made by dibs should have a client.
func TestClientOf(t *testing.T) {
	for token, want := range map[string]string{
		"h:1:c:x": "h:1:c", "h:1:c:x:label": "h:1:c", "h:1:c::x": "h:1:c", "h:1:c:with a space": "h:1:c",
		"worker": "", "h:1:c": "", "h:x:c:x": "", "h:1x:c:x": "", "h::c:x": "", "h:1:c:": "", "h:1::x": "", "h 1:1:c:x": "", ":1:c:x": "", "h:1": "", "h:": "", "": "",
	} {
		if have := ClientOf(token); have != want {
			t.Errorf("token %q: client %q, want %q", token, have, want)
		}
	}
}
