package wire

import "testing"

// A value should contain the fence only if the token begins with its client.
func TestAppendValue(t *testing.T) {
	for token, client := range map[string]string{
		"h:1:c:x": "h:1:c", "h:1:c:x:label": "h:1:c", "worker": "", "h:1:c": "", "h:x:c:x": "", "h:1:c:": "", "h 1:1:c:x": "", "": "",
	} {
		want := token
		if client != "" {
			want = "17 " + token
		}
		if value := string(appendValue(nil, token, 17)); value != want {
			t.Errorf("token %q: %q, want %q", token, value, want)
		}
		if value := string(appendValue(nil, token, 0)); value != token {
			t.Errorf("token %q without a fence: %q", token, value)
		}
		if isMadeBy(token, "h:1:c") != (client != "") || isMadeBy(token, "h:1:d") || isMadeBy(token, "") {
			t.Errorf("token %q: made by another client", token)
		}
	}
}
