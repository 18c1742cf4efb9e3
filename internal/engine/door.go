package engine

// of is set by the root package, which alone can look into a *honker.DB.
var of func(db any) *Engine

// Register tells how to reach the engine of a *honker.DB. The root package calls it when it
// is initialised.
func Register(f func(db any) *Engine) { of = f }

// Of returns the engine of db, a *honker.DB: for the packages of this module that build on
// the root without being part of it. It panics on anything else, which is a mistake of this
// module's own.
func Of(db any) *Engine { return of(db) }
