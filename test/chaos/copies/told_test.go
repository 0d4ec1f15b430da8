package copies

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSecrecy(t *testing.T) {
	traces := []string{"s3cr3t-", "czNjcjN0"}
	for _, c := range []struct {
		name    string
		story   *story
		written string
		want    int
	}{
		{"the Secret and its copy have it", (&story{}).put(pass("s3cr3t-v0")).put(secret("pass-a", "s3cr3t-v0")), "made pass-a", 0},
		{"a ConfigMap has it", (&story{}).put(conf("s3cr3t-v0")), "", 1},
		{"an annotation has it in base64", (&story{}).put(noted("czNjcjN0LXYw")), "", 1},
		{"a line of the log has it", &story{}, "first\nvalue=s3cr3t-v0\nlast", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := Secrecy(c.story.record, traces, "nothing", c.written)
			if len(found) != c.want {
				t.Errorf("found %v, want %d", found, c.want)
			}
			for _, v := range found {
				if v.Rule != Told || strings.Contains(v.Message, "v0") {
					t.Errorf("found %v", v)
				}
			}
		})
	}
}

// noted is a pod that says something in an annotation.
func noted(text string) metav1.Object {
	p := pod("", "conf")
	p.Annotations = map[string]string{"note": text}
	return p
}
