package env

import (
	"context"
	"io/fs"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestParseFile(t *testing.T) {
	const good = "# a comment='no'\n\n  A='1'\nB = 'two # words'  \nC='line1\nline2'\nD=''\nA='again'\n\tE='= $A \\n \"'"
	got, err := parseFile(good)
	want := map[string]string{"A": "again", "B": "two # words", "C": "line1\nline2", "D": "", "E": "= $A \\n \""}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("read %q, %v, want %q", got, err, want)
	}
	for text, want := range map[string]string{
		"A=secret":              "line 1",
		"A='x'\nB=\"secret\"":   "line 2",
		"A='x\ny'\n\nB='secret": "line 4",
		"A='x''secret'":         "line 1",
		"A='x'$SECRET":          "line 1",
		"secret":                "line 1",
		"='secret'":             "line 1",
	} {
		values, err := parseFile(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(strings.ToLower(err.Error()), "secret") {
			t.Errorf("%q: read %q, error %v, want one about %s without the words", text, values, err, want)
		}
	}
}

// A variable comes from a file of the pod's volume; what is not there is an error, or leaves an optional one unset.
func TestFileKeyRef(t *testing.T) {
	build := func(key, path string, optional bool) ([]Var, error) {
		pod := testPod()
		c := &corev1.Container{Name: "c", Env: []corev1.EnvVar{{Name: "V", ValueFrom: &corev1.EnvVarSource{
			FileKeyRef: &corev1.FileKeySelector{VolumeName: "written", Path: path, Key: key, Optional: &optional}}}}}
		return Build(context.Background(), pod, c, nil, nil, objects{files: map[string]string{"written/a.env": "K='v'\n"}})
	}
	vars, err := build("K", "a.env", false)
	if value, ok := Lookup(vars)("V"); err != nil || !ok || value != "v" {
		t.Errorf("V is %q, %v, %v", value, ok, err)
	}
	for _, c := range []struct{ key, path string }{{"no", "a.env"}, {"K", "no.env"}} {
		if _, err := build(c.key, c.path, false); err == nil || !strings.Contains(err.Error(), c.path) {
			t.Errorf("key %s of %s: %v, want an error that names the file", c.key, c.path, err)
		}
		vars, err := build(c.key, c.path, true)
		if value, ok := Lookup(vars)("V"); err != nil || ok {
			t.Errorf("optional key %s of %s: V is %q, %v, want it unset", c.key, c.path, value, err)
		}
	}
}

func (o objects) File(_ *corev1.Pod, volume, path string) ([]byte, error) {
	if text, ok := o.files[volume+"/"+path]; ok {
		return []byte(text), nil
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
}
