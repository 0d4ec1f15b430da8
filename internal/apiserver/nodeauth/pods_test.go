package nodeauth

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
)

func TestWhatCannotBeAPodIsNotFound(t *testing.T) {
	// No server is asked: the client itself would fail.
	client, err := kubernetes.NewForConfig(&restclient.Config{Host: "https://everynode.invalid"})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range [][2]string{{"ns", ""}, {"ns", ".."}, {"ns", "a/b"}, {"..", "a"}} {
		if _, err := ClientPods(client).GetPod(t.Context(), key[0], key[1]); !apierrors.IsNotFound(err) {
			t.Errorf("%q: %v, want that there is no such pod", key, err)
		}
	}
}
