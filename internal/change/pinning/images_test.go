package pinning

import (
	"strings"
	"testing"
)

func TestDigestsOfImages(t *testing.T) {
	of := strings.Repeat("a1", 32)
	for _, c := range [][3]string{
		{"demo:v1", "docker.io/library/demo@sha256:" + of, "sha256:" + of},
		{"demo", "docker-pullable://demo@sha256:" + of, "sha256:" + of},
		{"team/demo:v1", "docker.io/team/demo@sha256:" + of, "sha256:" + of},
		{"index.docker.io/team/demo:v1", "docker.io/team/demo@sha256:" + of, "sha256:" + of},
		{"localhost/demo:v1", "localhost/demo@sha256:" + of, "sha256:" + of},
		{"host:5000/demo", "host:5000/demo@sha256:" + of, "sha256:" + of},
		{"demo:v1", "docker.io/library/other@sha256:" + of, ""},
		{"demo:v1", "sha256:" + of, ""},
		{"demo:v1", "docker.io/library/demo@sha256:" + of[1:], ""},
		{"demo:v1", "docker.io/library/demo@sha256:" + strings.ToUpper(of), ""},
	} {
		if got := digestOf(c[0], c[1]); got != c[2] {
			t.Errorf("image %s with ID %s has digest %q, want %q", c[0], c[1], got, c[2])
		}
	}
	for image, want := range map[string]string{"a:1": "a", "a": "a", "h:5/a": "h:5/a", "h:5/a:1": "h:5/a"} {
		if got := repository(image); got != want {
			t.Errorf("the repository of %s is %s, want %s", image, got, want)
		}
	}
}
