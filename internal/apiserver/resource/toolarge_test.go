package resource

import (
	"errors"
	"net/http"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// refused is an error as etcd's client returns it.
type refused struct {
	code codes.Code
	text string
}

func (e refused) Error() string    { return e.text }
func (e refused) Code() codes.Code { return e.code }

func TestWhatTheDatabaseDoesNotTakeIsTooLarge(t *testing.T) {
	err := judged(refused{codes.InvalidArgument, "etcdserver: request is too large"})
	if !apierrors.IsRequestEntityTooLargeError(err) || err.(apierrors.APIStatus).Status().Code != http.StatusRequestEntityTooLarge {
		t.Errorf("%#v is not a refusal for size", err)
	}
	// The library looks for these to try once more with less.
	if again, ok := err.(interface{ Code() codes.Code }); !ok || again.Code() != codes.InvalidArgument || err.Error() != etcdTooLarge {
		t.Errorf("%#v is no error of etcd any more", err)
	}
	for _, other := range []error{nil, errors.New("x"), refused{codes.Unavailable, "etcdserver: request is too large"}, refused{codes.InvalidArgument, "x"}, status.Error(codes.InvalidArgument, "x")} {
		if got := judged(other); got != other { //nolint:errorlint // Handed on as it is, not wrapped.
			t.Errorf("%v became %#v", other, got)
		}
	}
}
