package webhook

import (
	"encoding/json"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAPodOfAnotherAccountIsMarked, is given no revision and is never refused. That of a DaemonSet without a policy is
// nobody's business.
func TestAPodOfAnotherAccountIsMarked(t *testing.T) {
	const mark = `"everynode.io/made-by":"others"`
	followed, _ := world(t)
	free := api{setPath: set("")}
	free[setPath].(metav1.Object).SetAnnotations(nil)
	for name, c := range map[string]struct {
		objects     api
		account     string
		annotations map[string]string
		patch       string
	}{
		"another": {followed, "others", nil, `[{"op":"add","path":"/metadata/annotations","value":{` + mark + `}}]`},
		"another, with annotations": {followed, "others", map[string]string{"a": "b"},
			`[{"op":"add","path":"/metadata/annotations/everynode.io~1made-by","value":"others"}]`},
		"another, without a policy": {free, "others", nil, ""},
		"another, of no DaemonSet":  {api{}, "others", nil, ""},
	} {
		s := newServer(t, c.objects, true)
		s.cfg.Maker = "them"
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", OwnerReferences: controlled,
			Annotations: c.annotations}}
		body, err := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{Namespace: "default",
			UserInfo: authenticationv1.UserInfo{Username: c.account}, Object: raw(t, pod)}})
		if err != nil {
			t.Fatal(err)
		}
		_, got := post(t, s, "pod", string(body))
		if !got.Allowed || string(got.Patch) != c.patch {
			t.Errorf("%s: the answer is %s (%+v)", name, got.Patch, got)
		}
	}
}
