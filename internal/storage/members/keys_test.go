package members

import "testing"

func TestWhoseKeysCount(t *testing.T) {
	for _, test := range []struct {
		what string
		here KeysHere
		all  string
		want Taking
	}{
		{"the first server of all", KeysHere{Own: "a"}, "", Publish},
		{"one that has joined", KeysHere{Own: "a"}, "a", Note},
		{"nothing new", KeysHere{Own: "a", Agreed: "a"}, "a", Rest},
		{"replaced here", KeysHere{Own: "b", Agreed: "a"}, "a", Publish},
		{"killed when that was told", KeysHere{Own: "b", Agreed: "a"}, "b", Note},
		{"replaced elsewhere", KeysHere{Own: "a", Agreed: "a"}, "b", Take},
		{"killed while it took them", KeysHere{Own: "half", Agreed: "a", Begun: "b"}, "b", Take},
		{"replaced elsewhere once more meanwhile", KeysHere{Own: "half", Agreed: "a", Begun: "b"}, "c", Take},
		{"killed when it had them", KeysHere{Own: "b", Agreed: "a", Begun: "b"}, "b", Note},
		{"replaced on two servers", KeysHere{Own: "b", Agreed: "a"}, "c", Dispute},
		{"older than this list", KeysHere{Own: "a"}, "b", Take},
		{"the database was put back", KeysHere{Own: "b", Agreed: "b"}, "a", Take},
	} {
		if got := test.here.Decide(test.all); got != test.want {
			t.Errorf("%s: %s, want %s", test.what, got, test.want)
		}
	}
}
