package conformance

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
)

const revisions = "/apis/apps/v1/namespaces/default/controllerrevisions"

func revision(name, data string, number int) string {
	return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"name":%q,"labels":{"set":"a"}},"data":%s,"revision":%d}`, name, data, number)
}

func TestControllerRevisions(t *testing.T) {
	s := start(t)
	t.Run("data is kept byte for byte", func(t *testing.T) {
		const data = `{"spec":{"z":1,"a":[1.50,"x"],"m":{"k":null,"b":true}}}`
		s.send(t, "POST", revisions, asJSON, revision("kept", data, 1)).want(t, 201)
		got := s.send(t, "GET", revisions+"/kept", asJSON, "").want(t, 200)
		if !bytes.Contains(got.raw, []byte(`"data":`+data+`,`)) {
			t.Errorf("data is not %s in %s", data, got.raw)
		}
		for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
			config := restclient.CopyConfig(s.Config)
			config.ContentType = mediaType
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			r, err := client.AppsV1().ControllerRevisions("default").Get(t.Context(), "kept", metav1.GetOptions{})
			if err != nil || string(r.Data.Raw) != data {
				t.Errorf("as %s: %s, %v", mediaType, r.Data.Raw, err)
			}
			again := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{GenerateName: "again-"}, Data: r.Data, Revision: 2}
			if again, err = client.AppsV1().ControllerRevisions("default").Create(t.Context(), again, metav1.CreateOptions{}); err != nil || string(again.Data.Raw) != data {
				t.Errorf("written as %s: %v, %v", mediaType, again, err)
			}
		}
	})
	t.Run("the number changes and the data does not", func(t *testing.T) {
		s.send(t, "POST", revisions, asJSON, revision("numbered", `{"a":1}`, 3)).want(t, 201)
		for _, n := range []int{7, 2, 0} {
			s.send(t, "PUT", revisions+"/numbered", asJSON, revision("numbered", `{"a":1}`, n)).want(t, 200).
				expect(t, map[string]string{"revision": fmt.Sprint(n)})
		}
		s.send(t, "PUT", revisions+"/numbered", asJSON, revision("numbered", `{"a":1}`, -1)).says(t, 422, "Invalid",
			`ControllerRevision.apps "numbered" is invalid: revision: Invalid value: -1: must be greater than or equal to 0`)
		got := s.send(t, "PUT", revisions+"/numbered", asJSON, revision("numbered", `{"a":2}`, 3)).want(t, 422)
		if text := fmt.Sprint(got.body["message"]); !strings.HasPrefix(text, `ControllerRevision.apps "numbered" is invalid: data: Invalid value: `) || !strings.HasSuffix(text, ": field is immutable") {
			t.Errorf("other data is refused with %q", text)
		}
	})
	t.Run("a patch with a stray field is taken", func(t *testing.T) {
		s.send(t, "POST", revisions, asJSON, revision("strayed", `{"a":1}`, 1)).want(t, 201)
		got, err := s.Client.AppsV1().ControllerRevisions("default").Patch(t.Context(), "strayed", types.StrategicMergePatchType,
			[]byte(`{"metadata":{"labels":{"patched":"yes"}},"updateStrategy":{"type":"OnDelete"}}`), metav1.PatchOptions{})
		if err != nil || got.Labels["patched"] != "yes" || got.Labels["set"] != "a" {
			t.Errorf("got %v, %v", got, err)
		}
	})
	t.Run("they are listed across namespaces and deleted as a collection", func(t *testing.T) {
		s.send(t, "POST", revisions, asJSON, revision("listed", `{"a":1}`, 1)).want(t, 201)
		got := s.send(t, "GET", "/apis/apps/v1/controllerrevisions?labelSelector=set%3Da", asJSON, "").want(t, 200)
		if n := len(got.body["items"].([]any)); n < 2 {
			t.Errorf("%d are listed", n)
		}
		s.send(t, "DELETE", revisions+"?labelSelector=set%3Da", asJSON, "").want(t, 200)
		got = s.send(t, "GET", revisions+"?labelSelector=set%3Da", asJSON, "").want(t, 200)
		if n := len(got.body["items"].([]any)); n != 0 {
			t.Errorf("%d are left", n)
		}
	})
}

// Controllers adopt and release with patches that name the object's UID.
func TestUIDInAPatch(t *testing.T) {
	s := start(t)
	const pods = "/api/v1/namespaces/default/pods"
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	uid := s.send(t, "POST", pods, asJSON, pod).want(t, 201).at("metadata.uid")
	// A kind of which no controller lets pods go.
	ownerUID := s.send(t, "POST", "/api/v1/namespaces/default/configmaps", asJSON, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"owner"}}`).
		want(t, 201).at("metadata.uid")
	owner := fmt.Sprintf(`{"apiVersion":"v1","blockOwnerDeletion":true,"controller":true,"kind":"ConfigMap","name":"owner","uid":%q}`, ownerUID)
	adopt := func(uid any) string {
		return fmt.Sprintf(`{"metadata":{"uid":%q,"ownerReferences":[%s]}}`, uid, owner)
	}
	release := func(uid any) string {
		return fmt.Sprintf(`{"metadata":{"uid":%q,"ownerReferences":[{"$patch":"delete","uid":%q}]}}`, uid, ownerUID)
	}
	for _, patch := range []string{adopt("another"), release("another")} {
		s.send(t, "PATCH", pods+"/p", strategic, patch).
			says(t, 422, "Invalid", `Pod "p" is invalid: metadata.uid: Invalid value: "another": field is immutable`)
	}
	s.send(t, "PATCH", pods+"/p", strategic, adopt(uid)).want(t, 200).expect(t, map[string]string{"metadata.ownerReferences": "[" + owner + "]"})
	s.send(t, "PATCH", pods+"/p", strategic, release(uid)).want(t, 200).expect(t, map[string]string{"metadata.ownerReferences": "null"})
}
