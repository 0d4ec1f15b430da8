package resource

import (
	"errors"
	"net/http"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// etcdTooLarge is how etcd refuses an object that is larger than it takes.
const etcdTooLarge = "etcdserver: request is too large"

// tooLarge gives etcd's refusal a status: the object is too large (413), and
// nothing is wrong with the server. The library must still find etcd's error in
// it, because it then tries once more without the managed fields.
type tooLarge struct{ error }

// Code is etcd's code.
func (tooLarge) Code() codes.Code { return codes.InvalidArgument }

// Unwrap returns etcd's error.
func (e tooLarge) Unwrap() error { return e.error }

// Status implements apierrors.APIStatus.
func (e tooLarge) Status() metav1.Status {
	return metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusRequestEntityTooLarge,
		Reason:  metav1.StatusReasonRequestEntityTooLarge,
		Message: "Request entity too large: " + e.Error(),
	}
}

// judged gives an error of the storage the status that it lacks.
func judged(err error) error {
	coded := interface{ Code() codes.Code }(nil)
	if errors.As(err, &coded) && coded.Code() == codes.InvalidArgument && err.Error() == etcdTooLarge {
		return tooLarge{err}
	}
	return err
}
