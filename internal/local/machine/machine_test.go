package machine

import (
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/local/layout"
)

func TestChooseRuntime(t *testing.T) {
	able := Machine{Root: true, Containerd: "/c", ContainerdVersion: "1.6.20", Runc: "/r", Shim: "/s", Iptables: "/i",
		Nft: "/n", CNIBin: "/cni"}
	lacking := able
	lacking.Runc, lacking.CNIBin = "", ""
	plain := able
	plain.Root = false
	for _, tc := range []struct {
		name    string
		asked   layout.Runtime
		machine Machine
		want    layout.Runtime
		says    []string
	}{
		{"auto, able", layout.RuntimeAuto, able, layout.RuntimeContainerd, []string{"1.6.20", "--runtime simulated"}},
		{"auto, lacking", layout.RuntimeAuto, lacking, layout.RuntimeSimulated,
			[]string{"lacks runc and the CNI plugins", "apt-get install"}},
		{"auto, no root", layout.RuntimeAuto, plain, layout.RuntimeSimulated, []string{"need root", "sudo"}},
		{"simulated", layout.RuntimeSimulated, able, layout.RuntimeSimulated, []string{"as asked", "--runtime containerd"}},
		{"containerd, able", layout.RuntimeContainerd, able, layout.RuntimeContainerd, []string{"as asked"}},
		{"containerd, lacking", layout.RuntimeContainerd, lacking, "",
			[]string{"needs runc and the CNI plugins", "apt-get install", "--runtime simulated"}},
		{"containerd, no root", layout.RuntimeContainerd, plain, "", []string{"needs root", "sudo"}},
	} {
		choice, err := ChooseRuntime(tc.asked, tc.machine)
		text := choice.Why
		if err != nil {
			text = err.Error()
		}
		if choice.Runtime != tc.want || (err != nil) != (tc.want == "") {
			t.Errorf("%s: chose %q (%v), want %q", tc.name, choice.Runtime, err, tc.want)
		}
		for _, part := range tc.says {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %q does not say %q", tc.name, text, part)
			}
		}
		if strings.Contains(text, "\n") {
			t.Errorf("%s: more than one line: %q", tc.name, text)
		}
	}
}

func TestParseContainerdVersion(t *testing.T) {
	for text, want := range map[string]string{
		"containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3\n": "1.6.20~ds1",
		"containerd github.com/containerd/containerd/v2 v2.0.1 abc":                     "2.0.1",
		"nonsense": "",
	} {
		if got := parseContainerdVersion(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// FuzzContainerdVersion reads what a program says of its version. A version has no space.
func FuzzContainerdVersion(f *testing.F) {
	f.Add("")
	f.Add("containerd github.com/containerd/containerd v1.7.2 abc")
	f.Fuzz(func(t *testing.T, text string) {
		if got := parseContainerdVersion(text); strings.ContainsAny(got, " \t\n") {
			t.Errorf("%q has the version %q", text, got)
		}
	})
}
