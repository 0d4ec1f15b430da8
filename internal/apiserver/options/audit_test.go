package options

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A log that cannot be written, or a policy that cannot be read, is refused in one line
// before anything starts; what can be is taken, and leaves a log that only its owner reads.
func TestAuditThatCannotWork(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
	file := write("file", "")
	for name, c := range map[string]struct{ policy, log, want string }{
		"no folder can be made there": {good, filepath.Join(file, "audit.log"), "the audit log cannot be written"},
		"a folder":                    {good, dir, "the audit log cannot be written"},
		"no policy":                   {filepath.Join(dir, "none"), filepath.Join(dir, "audit.log"), "--audit-policy-file"},
		"a policy of nonsense":        {write("nonsense", "kind: Nonsense\n"), filepath.Join(dir, "audit.log"), "--audit-policy-file"},
		"an empty policy":             {write("empty", "apiVersion: audit.k8s.io/v1\nkind: Policy\n"), filepath.Join(dir, "audit.log"), "--audit-policy-file"},
		"a level that there is not":   {write("level", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: All}]\n"), filepath.Join(dir, "audit.log"), "--audit-policy-file"},
	} {
		o := New()
		o.Audit.PolicyFile, o.Audit.LogOptions.Path = c.policy, c.log
		if _, err := o.Complete(); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want one line with %q", name, err, c.want)
		}
	}
	o := New()
	o.Audit.PolicyFile, o.Audit.LogOptions.Path = good, filepath.Join(dir, "new", "audit.log")
	if _, err := o.Complete(); err != nil {
		t.Errorf("what can be written is refused: %v", err)
	}
	if info, err := os.Stat(o.Audit.LogOptions.Path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the log is %v, %v, want a file for its owner alone", info, err)
	}
}
