"""One folder a layer; the folder stack/ starts the whole product."""
