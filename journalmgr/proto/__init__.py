"""Protobuf definitions and the modules generated from them; `make proto` writes the `_pb2` files, nobody edits them."""
