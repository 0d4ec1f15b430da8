package document

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeletv1 "k8s.io/kubelet/config/v1"
)

func TestDecode(t *testing.T) {
	types := runtime.NewScheme()
	if err := kubeletv1.AddToScheme(types); err != nil {
		t.Fatal(err)
	}
	wanted := schema.GroupVersionKind{Group: "kubelet.config.k8s.io", Version: "v1", Kind: "CredentialProviderConfig"}
	const head = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n"
	for name, c := range map[string]struct{ text, fails string }{
		"good":          {head + "providers:\n- name: a\n", ""},
		"JSON":          {`{"apiVersion":"kubelet.config.k8s.io/v1","kind":"CredentialProviderConfig","providers":[]}`, ""},
		"with comments": {"# first\n---\n" + head + "---\n# nothing\n", ""},
		"empty":         {"", "is empty"},
		"only comments": {"# a\n---\n", "is empty"},
		"two":           {head + "---\n" + head, "holds several documents"},
		"unknown":       {head + "provider: []\n", `unknown field "provider"`},
		"wrong case":    {head + "Providers: []\n", `unknown field "Providers"`},
		"unknown below": {head + "providers:\n- nome: a\n", `unknown field "providers[0].nome"`},
		"twice":         {head + "providers: []\nproviders: []\n", `"providers" already set`},
		"twice in JSON": {`{"apiVersion":"kubelet.config.k8s.io/v1","kind":"CredentialProviderConfig","providers":[],"providers":[]}`, `"providers"`},
		"wrong type":    {head + "providers: 7\n", "providers"},
		"other kind":    {"apiVersion: v1\nkind: Pod\n", `holds the kind "Pod" of "v1", and can only hold a CredentialProviderConfig of "kubelet.config.k8s.io/v1"`},
		"no kind":       {"a: b\n", `holds the kind "" of ""`},
		"a list":        {"- a\n", "not YAML or JSON"},
		"not YAML":      {"a: b: c\n", "not YAML or JSON"},
		"not text":      {"\x00\x01", "not YAML or JSON"},
		"a bomb":        {head + "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n", "not YAML or JSON"},
	} {
		_, err := Decode([]byte(c.text), types, wanted)
		if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
			t.Errorf("%s: %v, want %q", name, err, c.fails)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the error has several lines: %v", name, err)
		}
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	huge := filepath.Join(dir, "huge")
	if err := os.WriteFile(huge, make([]byte, maxSettings+1), 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, "open")
	if err := errors.Join(os.WriteFile(open, nil, 0o600), os.Chmod(open, 0o620)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		open: "chmod go-w",
		huge: "more than 1048576 bytes", dir: "is not a file", "/dev/zero": "is not a file", filepath.Join(dir, "none"): "no such file",
	} {
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
