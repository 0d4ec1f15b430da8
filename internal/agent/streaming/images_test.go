package streaming

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/everynode/everynode/internal/node/imagepull"
)

// fakeImages are pulled, or not, by what is asked.
type fakeImages struct {
	begun, left chan struct{}
}

func (f *fakeImages) Check(image string) error {
	if image == "" {
		return apierrors.NewBadRequest("no image")
	}
	return nil
}

func (f *fakeImages) Pull(ctx context.Context, image string, pin, always bool) imagepull.Progress {
	if image == "hang" {
		close(f.begun)
		<-ctx.Done()
		close(f.left)
		return imagepull.Progress{State: imagepull.Failed, Message: ctx.Err().Error()}
	}
	if pin && always {
		return imagepull.Progress{State: imagepull.Pulled, Bytes: 42}
	}
	return imagepull.Progress{State: imagepull.Failed, Message: "no"}
}

func (f *fakeImages) Pins() ([]string, error) { return nil, nil }

func (f *fakeImages) Unpin(image string) (bool, error) {
	if image == "broken" {
		return false, errors.New("it is broken")
	}
	return image == "kept", nil
}

func TestImages(t *testing.T) {
	images := &fakeImages{}
	s := &Server{cfg: Config{Images: images, Protect: func(next http.Handler) http.Handler { return next }}}
	server := httptest.NewServer(s.handler())
	defer server.Close()
	for _, c := range []struct {
		request string
		code    int
		want    string
	}{
		{"POST /images/pull?image=a&pin=true&always=true", 200, `{"state":"Pulled","bytes":42}`},
		{"POST /images/pull?image=a", 200, `{"state":"Failed","message":"no"}`},
		{"POST /images/pull?image=", 400, "no image"},
		{"POST /images/pull?image=a&pin=maybe", 400, "must be true or false"},
		{"GET /images/pull?image=a", 405, ""},
		{"GET /images/pins", 200, `{"images":[]}`},
		{"DELETE /images/pins?image=kept", 200, `{"removed":true}`},
		{"DELETE /images/pins?image=other", 200, `{"removed":false}`},
		{"DELETE /images/pins?image=broken", 500, "it is broken"},
		{"DELETE /images/pins", 400, "no image"},
		{"POST /images/pins?image=a", 405, ""},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		code, text := do(t, method, server.URL+path)
		if code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s, want %d %s", c.request, code, text, c.code, c.want)
		}
	}
}

// A pull ends when nobody waits for it any more.
func TestPullOfACallerWhoLeaves(t *testing.T) {
	images := &fakeImages{begun: make(chan struct{}), left: make(chan struct{})}
	s := &Server{cfg: Config{Images: images, Protect: func(next http.Handler) http.Handler { return next }}}
	server := httptest.NewServer(s.handler())
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-images.begun
		cancel()
	}()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/images/pull?image=hang", nil)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := http.DefaultClient.Do(request); err == nil {
		response.Body.Close()
		t.Error("it was answered")
	}
	<-images.left
}

func do(t *testing.T, method, address string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}
