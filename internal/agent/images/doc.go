// Package images makes the images of containers present on a node, by the rules of imagePullPolicy.
//
// Any number of containers may wait for one image: it is pulled once. Credentials come from the pod's pull secrets, the
// node's file, and its programs; each that fits the image's registry is tried. When to try again after a failure is not
// decided here (see podworker).
package images
