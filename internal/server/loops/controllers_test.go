package loops

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// A loop that does not stop when it is told to is told of.
func TestLoopThatDoesNotStop(t *testing.T) {
	term, lose := context.WithCancel(t.Context())
	options := ManagerOptions(term)
	options.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper,
		error) {
		return meta.NewDefaultRESTMapper(nil), nil
	}
	patience := 10 * time.Millisecond
	options.GracefulShutdownTimeout = &patience
	m, err := ctrl.NewManager(&rest.Config{Host: "127.0.0.1:1"}, options)
	if err != nil {
		t.Fatal(err)
	}
	stubborn := make(chan struct{})
	defer close(stubborn)
	if err := m.Add(manager.RunnableFunc(func(context.Context) error { lose(); <-stubborn; return nil })); err != nil {
		t.Fatal(err)
	}
	err = ended(term, m.Start(term))
	if !errors.Is(err, ErrStillAtWork) {
		t.Errorf("a loop that does not stop: %v", err)
	}
}
